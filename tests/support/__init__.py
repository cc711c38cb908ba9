"""What tests share: waiting without sleeping, real servers, databases of their own."""
